"""Which cell starts next, and on which worker, when several workers share the hosts of one inventory."""
