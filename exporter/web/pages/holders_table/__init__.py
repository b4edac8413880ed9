"""The table of holders: columns, order, filter, and its rows as HTML."""
