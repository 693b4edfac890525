"""What came of it: the report, its causes, studies over sparsities, what fits, drawings, the run folder."""
