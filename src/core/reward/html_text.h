// SPDX-License-Identifier: Apache-2.0
// Characters that a text writes as HTML does: "&amp;", "&#38;" or "&#x26;".
#pragma once

#include <string>
#include <string_view>

namespace oxbow::reward {

// Every such reference as its character, by the rules of HTML as Python's html.unescape has them:
// the longest known name counts, with or without its ';'; numbers of no character become U+FFFD or
// nothing; what is no reference stays. Requires UTF-8.
std::string UnescapeHtml(std::string_view text);

// The named characters of HTML (https://html.spec.whatwg.org/entities.json): "NAME=HEX " or
// "NAME=HEX+HEX " for each, in the order of names. A name has no '&'; it has its ';' where the
// standard has it, and old names are there with and without.
extern const std::string_view kHtmlEntities;

}  // namespace oxbow::reward
