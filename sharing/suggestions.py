"""The answers of the server about the terms of a share: those in force, and others that its recipient suggests.

The address is streamstate's own, ``shares/NAME/terms``; the protocol of Delta Sharing has none for it.
"""

from __future__ import annotations

import json

from streamstate.errors import InvalidArgumentError
from streamstate.sharing.agreed_terms import AgreedTerms
from streamstate.sharing.protocol import AskedError
from streamstate.sharing.shares import Shares
from streamstate.sharing.suggestion import PartialTerms, partial_terms

_LARGEST = 10_000
"""Bytes of a suggestion, which the store keeps."""


def terms_answer(shares: Shares, recipient: str, share: str, body: bytes | None) -> str:
    """Return the terms of a share as JSON, after noting the suggestion in a request's body, if there is one.

    Raises:
        AskedError: the recipient has no such share, or the suggestion cannot be noted.
    """
    contract = shares.share(recipient, share)
    if body is not None:
        contract = shares.suggest(contract, _read(body))
    return AgreedTerms.of(contract).to_json()


def _read(body: bytes) -> PartialTerms:
    if len(body) > _LARGEST:
        raise AskedError(413, "The request is too large.")
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise AskedError(400, "Invalid body: expected JSON.") from error
    try:
        return partial_terms(asked)
    except InvalidArgumentError as error:  # it speaks of the request only
        raise AskedError(400, str(error)) from error
