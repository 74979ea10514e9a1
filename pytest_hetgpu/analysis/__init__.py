"""Program output to Outcome, and runs to differences. Pure: no module here touches a node."""
