"""Step 5 of 6: Scores + Trace -> Plan: which channels stay, by a sparsity or within budgets."""
