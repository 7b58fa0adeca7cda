"""Switchyard against its peers, in one run on one machine: ``make bench``."""
