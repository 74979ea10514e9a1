"""The launcher of the stack, called as plainly as it can be."""

from pytest_hetgpu.api import Command, Launcher, Start


class Plain(Launcher):
    """`mpirun -n N env NAME=VALUE ... program`, a context after the other."""

    def command(self, start: Start) -> Command:
        tokens = [start.stack.launcher]
        for name, value in sorted(start.mca.items()):
            tokens += ["--mca", name, value]
        for place, context in enumerate(start.contexts):
            variables = [f"{name}={value}" for name, value in sorted(context.env.items())]
            tokens += [":"] * bool(place) + ["-n", str(context.ranks), "env", *variables, *context.argv]
        return Command(tuple(tokens))
