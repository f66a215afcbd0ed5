"""The names and files of the examples, made once for all tests."""

from examples.spark_world import spark_folder, spark_world  # noqa: F401 - fixtures
from examples.world import folder, world  # noqa: F401 - fixtures
