"""What a script does to the files of its process's streams, put back when it has ended."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import os

    from hotloop.loop.scripts.surroundings import surroundings_put_back

    with surroundings_put_back():
        {closes}
        files = [open(os.devnull) for _ in range(4)]
        print("of the script")
    print("after the script" + "".join(file.read() for file in files))
    del files
    print("at the end")
"""


def printed(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("closes", ["os.close(1)", "os.close(fd=1)", "os.closerange(0, 3)"])
def test_no_file_has_the_number_of_a_stream_that_was_closed(closes: str) -> None:
    # Else the output that is put back takes the number from the file, and ends with it.
    assert printed(PROGRAM.format(closes=closes)).split("\n") == [
        "after the script",
        "at the end",
        "",
    ]


def test_files_that_are_no_streams_are_closed_as_ever() -> None:
    printed("""
        import os
        from hotloop.loop.scripts.surroundings import surroundings_put_back

        def is_open(number):
            try:
                os.close(os.dup(number))
            except OSError:
                return False
            return True

        close, closerange = os.close, os.closerange
        first, second, third = (os.open(os.devnull, os.O_RDONLY) for _ in range(3))
        with surroundings_put_back():
            os.close(first)
            assert not is_open(first)
            try:
                os.close(first)
            except OSError as error:
                assert error.errno == 9
            else:
                raise AssertionError("closed twice")
            os.closerange(0, 0)
            os.closerange(second, second)
            assert is_open(1) and is_open(second)
            os.closerange(1, second + 1)
            assert is_open(1) and not is_open(second) and is_open(third)
        assert (os.close, os.closerange) == (close, closerange)
    """)
