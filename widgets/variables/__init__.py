"""Views of shared variables: their versions, and a slider that sets one."""
