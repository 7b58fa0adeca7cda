"""What the pages show, one file a page: keyset, bounded counts, no rules."""
