"""Conditions on state: when rows met them, in the index or in files, and watching for epochs at which rows begin to."""
