"""What calls share: checks of arguments, ranges of epochs, progress."""
