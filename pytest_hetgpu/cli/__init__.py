"""The `hetgpu` command: one module per subcommand."""
