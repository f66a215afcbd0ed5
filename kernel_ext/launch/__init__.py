"""Starting and running a query whose every epoch is captured."""
