"""A file a page. Views hold no rules."""
