"""A log in one streaming pass: lines, what dialects hear of them, records of ranks, signs and versions."""
