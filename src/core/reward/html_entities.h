// SPDX-License-Identifier: Apache-2.0
// The named characters of HTML (https://html.spec.whatwg.org/entities.json).
#pragma once

#include <string_view>

namespace oxbow::reward {

// "NAME=HEX " or "NAME=HEX+HEX " for each, in the order of names. A name has no '&'; it has its ';'
// where the standard has it, and old names are there with and without.
extern const std::string_view kHtmlEntities;

}  // namespace oxbow::reward
