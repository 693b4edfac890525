"""Other people's tools, each imported only when it is used."""
