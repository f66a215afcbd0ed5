"""The names and files of the examples, made once for all tests."""

from examples.world import folder, world  # noqa: F401 - fixtures
