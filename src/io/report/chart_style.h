// SPDX-License-Identifier: Apache-2.0
// How drawings of svg_chart.h look in a page (html.cc).
#pragma once

namespace oxbow::io {

// CSS variables. The series colours keep their order apart for the common kinds of colour blindness
// (Okabe-Ito).
inline constexpr char kChartColours[] =
    "--ink:#1d2126;--soft:#5d6670;--line:#e3e5e8;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0559a;--c4:#c08a00;--c5:#3d9fd6;--c6:#6b7480;"
    "--c7:#8a5a3c;--c8:#2b2f36";
inline constexpr char kChartColoursInDark[] =
    "--ink:#e6e8ea;--soft:#9aa3ad;--line:#33383e;"
    "--c0:#56b4e9;--c1:#f0863c;--c2:#2fc498;--c3:#d98ac6;--c4:#e6b422;--c5:#8fd0f5;--c6:#a5adb6;"
    "--c7:#c49878;--c8:#f2f3f5";

inline constexpr char kChartRules[] = R"css(
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.mark{fill:var(--soft)}.cursor{stroke:var(--soft);stroke-dasharray:3 3;visibility:hidden}
.tick{fill:var(--soft);font:11px system-ui,sans-serif}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.area,.dot{fill:currentColor}.band{fill:currentColor;opacity:.18}
.dash .line{stroke-dasharray:6 4}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}
.c8{color:var(--c8)}
)css";

}  // namespace oxbow::io
