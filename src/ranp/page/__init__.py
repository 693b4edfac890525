"""The report as one page of HTML: what was pruned, why, and what it buys. Folders in, one file out, no network.

``gather`` reads folders into plain values, ``rebuilding`` adds what needs the networks themselves, ``charts`` makes
figures of the values, the sections make HTML, ``build`` puts them together and writes the file.
"""
