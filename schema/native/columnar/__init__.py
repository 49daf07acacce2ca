"""Native jobs in columns: the prefilter, the reader and the writer, for thousands at once. Needs the extra ``columnar``."""
