"""Kue jobs in columns: the prefilter and the reader, for thousands at once. Needs the extra ``columnar``."""
