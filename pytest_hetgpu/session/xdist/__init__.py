"""Order and distribution of cells when several workers share the hosts of one inventory."""
