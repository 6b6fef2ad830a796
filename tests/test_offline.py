"""Nothing is fetched that was not asked for."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def test_importing_and_using_the_core_opens_no_connection():
    program = """
        import socket

        def refused(*arguments, **options):
            raise AssertionError("a connection was opened")

        socket.socket.connect = socket.socket.connect_ex = socket.create_connection = refused
        socket.getaddrinfo = refused

        import numpy as np
        import evenhand as eh

        for name in eh.__all__:
            getattr(eh, name)
        data = eh.datasets.make_zafar(200, random_state=0)
        rule = eh.learn_rule(data.y, data.group, data.p_y, data.p_joint, criterion="dp", tolerance=0.2)
        eh.audit(data.y, rule.decide(data.p_y, data.p_joint), data.group)
        assert len(eh.datasets.load_adult().y) == 45_222
        print("done")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "done", done.stderr
