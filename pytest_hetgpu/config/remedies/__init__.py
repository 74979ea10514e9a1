"""Settings that experts try for a failing transport."""
