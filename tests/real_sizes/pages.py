# SPDX-License-Identifier: Apache-2.0
"""The parts of a page that a person sees: its words and its pictures."""
import base64
import html
import io
import re
import urllib.parse
import urllib.request

from PIL import Image

# Addresses of pictures: in attributes, in styles, and in what a script reads.
EMBEDDED = re.compile(r"data:image/(?:png|jpeg);base64,([A-Za-z0-9+/=]+)")
SHEET = re.compile(r"url\(data:image/(?:png|jpeg);base64,([A-Za-z0-9+/=]+)\);--columns:(\d+);--rows:(\d+)")
ADDRESS = re.compile(r"""["'(]([^"'()<>\s]+?\.(?:png|jpe?g))["')]|\b(?:src|href)="(?!data:|#|http)([^"#]+)\"""")
DIGIT_WORDS = re.compile(r"\b(speckle|layouts?|dust)\b", re.IGNORECASE)


def words_of(page):
    """The text of a page with its tooltips, without styles, scripts and pictures."""
    page = re.sub(r"(?s)<(style|script)\b.*?</\1>", " ", page)
    told = re.findall(r'(?:title|alt|aria-label|content)="([^"]*)"', page)
    return html.unescape(re.sub(r"<[^>]*>", " ", page) + " " + " ".join(told))


def digit_words(text):
    """Words about pictures of digits, each with what stands around it."""
    return [text[max(0, at.start() - 50):at.end() + 30].replace("\n", " ") for at in DIGIT_WORDS.finditer(text)]


def embedded(page):
    """The sizes of the pictures that lie in the page itself."""
    return [Image.open(io.BytesIO(base64.b64decode(data))).size for data in EMBEDDED.findall(page)]


def cells(page):
    """The sizes of the parts of embedded pictures of which the page shows one at a time: its grids."""
    found = []
    for data, columns, rows in SHEET.findall(page):
        width, height = Image.open(io.BytesIO(base64.b64decode(data))).size
        found += [(width // int(columns), height // int(rows))] * (int(columns) * int(rows))
    return found


def beside(page, folder):
    """The sizes of the pictures that the page names by relative addresses."""
    names = {html.unescape(a or b) for a, b in ADDRESS.findall(page)}
    paths = [folder / urllib.parse.unquote(name) for name in names if ":" not in name]
    return [Image.open(path).size for path in paths if path.suffix in (".png", ".jpg", ".jpeg") and path.is_file()]


def get(address):
    """(type, bytes) of an address on this machine."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=30) as answer:
        return answer.headers.get_content_type(), answer.read()


def served(address):
    """(the page, the sizes of the pictures that it embeds or names) of a server."""
    page = get(address)[1].decode()
    sizes = embedded(page)
    for name in sorted({html.unescape(a or b) for a, b in ADDRESS.findall(page)}):
        try:
            kind, data = get(urllib.parse.urljoin(address, name))
        except OSError:
            continue
        if kind.startswith("image/") and kind != "image/svg+xml":
            sizes.append(Image.open(io.BytesIO(data)).size)
    return page, sizes


def count(sizes, side):
    """How many of them have both sides of at least `side` pixels."""
    return sum(min(size) >= side for size in sizes)
