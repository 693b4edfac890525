"""The report as one page of HTML: what was pruned, why, and what it buys. Folders in, one file out, no network.

``gather`` reads folders into plain values, ``material`` adds what needs the networks themselves, ``charts`` makes
figures of the values. ``detail`` and ``comparing`` fill the templates of the sections, ``build`` fills that of the page
and writes the file. All HTML is in ``template``.
"""
