"""The input of an epoch: the rows that its sources delivered, read again."""
