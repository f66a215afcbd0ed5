"""What differs between epochs, what happened to a key, and why."""
