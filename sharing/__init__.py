"""Share state across organisations: contracts, a server of the Delta Sharing protocol, and stores of others.

The idea is Medusa's (Cetintemel, "The Aurora and Medusa Projects", IEEE Data Engineering Bulletin 26(1), 2003):
participants stay autonomous, and agree by contracts on what they share. The wire is the open protocol of Delta Sharing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamstate.lazy_names import lazy_names

if TYPE_CHECKING:
    from streamstate.sharing.agreed_terms import AgreedTerms as AgreedTerms
    from streamstate.sharing.contract import Contract as Contract
    from streamstate.sharing.contract import GrantedTable as GrantedTable
    from streamstate.sharing.contract import Terms as Terms
    from streamstate.sharing.contract_list import ContractList as ContractList
    from streamstate.sharing.following import Following as Following
    from streamstate.sharing.following import Freshness as Freshness
    from streamstate.sharing.request_handler import Limits as Limits
    from streamstate.sharing.server import ShareServer as ShareServer
    from streamstate.sharing.server import serve as serve
    from streamstate.sharing.shared_frame import SharedFrame as SharedFrame
    from streamstate.sharing.shared_frame import shared_frame as shared_frame
    from streamstate.sharing.shared_store import SharedStore as SharedStore
    from streamstate.sharing.shared_store import open_share as open_share
    from streamstate.sharing.suggestion import PartialTerms as PartialTerms
    from streamstate.sharing.suggestion import Suggestion as Suggestion

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
