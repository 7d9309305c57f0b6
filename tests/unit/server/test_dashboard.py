"""The files of the dashboard as the server serves them."""

from __future__ import annotations

import re
from importlib.resources import files

from fairlane.dashboard.assets import assets

from .local_server import opened, run


def test_the_page_needs_no_api_key_and_loads_nothing_else() -> None:
    """Files need no authentication, have a policy that allows only these files, and are sent again only if changed."""

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            for path, asset in assets().items():
                answer = await server.http.get(path)
                policy = answer.headers["content-security-policy"]
                assert (answer.status_code, answer.content) == (200, asset.data)
                assert policy.startswith("default-src 'self';")
                assert "unsafe" not in policy
                again = await server.http.get(path, headers={"if-none-match": answer.headers["etag"]})
                assert (again.status_code, again.content) == (304, b"")
            assert (await server.http.get("/dashboard/none.js", headers={"host": "localhost"})).status_code == 401

    run(main())


def test_the_page_is_complete_and_works_offline() -> None:
    """Every referenced file exists, nothing refers to another host, and the page has no inline script."""
    page = assets()["/"].data.decode()
    named = set(re.findall(r'(?:src|href)="(/[^"]*)"', page))
    for path, asset in assets().items():
        text = asset.data.decode()
        named |= {f"/dashboard/{name}" for name in re.findall(r'from "\./([^"]+)"', text)}
        assert not re.findall(r"https?://(?!www\.w3\.org/)", text), path
    assert named <= set(assets())
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", page)


def test_no_script_makes_markup_or_code_from_text() -> None:
    """Content of messages only becomes text: no call exists that would interpret it."""
    for path, asset in assets().items():
        if path.endswith(".js"):
            found = re.findall(
                r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", asset.data.decode()
            )
            assert not found, path


def test_the_plotly_script_comes_from_the_installed_package() -> None:
    """The repository has no copy; a browser gets it compressed, and only once."""
    shipped = files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()

    async def main() -> None:
        async with opened(requires_auth=True) as server:
            answer = await server.http.get("/dashboard/plotly.js", headers={"accept-encoding": "gzip"})
            assert answer.headers["content-encoding"] == "gzip"
            assert answer.content.endswith(b"\n" + shipped)
            plain = await server.http.get("/dashboard/plotly.js", headers={"accept-encoding": "identity"})
            assert plain.content == answer.content
            again = await server.http.get("/dashboard/plotly.js", headers={"if-none-match": answer.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")

    run(main())


def test_the_dashboard_speaks_the_words_of_the_glossary() -> None:
    """Words that the glossary does not have, or that name other things there, do not return."""
    coined = (
        "what hurts",
        "its turn comes",
        "Its life",
        "Why it is where it is",
        "nobody named",
        "dying /s",
        'asking"',
    )
    for path, asset in assets().items():
        text = asset.data.decode()
        assert [word for word in coined if word in text] == [], path
