#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/core/reward/html_entities.cc: HTML's named characters, from Python's copy of the standard's table.

    make_html_entities.py > src/core/reward/html_entities.cc
"""
import html.entities

WIDTH = 94

HEAD = """// Written by tools/make_html_entities.py.
#include "core/reward/html_text.h"

namespace oxbow::reward {

const std::string_view kHtmlEntities =
"""


def main():
    words = [f"{name}={'+'.join(format(ord(c), 'X') for c in value)} " for name, value in sorted(html.entities.html5.items())]
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) > WIDTH:
            lines.append(line)
            line = ""
        line += word
    lines.append(line)
    print(HEAD + "\n".join(f'    "{line}"' for line in lines) + ";\n\n}  // namespace oxbow::reward")


main()
