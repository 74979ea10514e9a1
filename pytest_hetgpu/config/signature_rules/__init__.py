"""Rules of users: files in the form of the shipped ones, which make keys of further failure texts."""
