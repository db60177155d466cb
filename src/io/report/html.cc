#include "io/report/html.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace oxbow::io {
namespace {

// The series colours keep their order apart for the common kinds of colour blindness (Okabe-Ito).
constexpr char kStyle[] = R"css(
:root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;--ink:#1d2126;--soft:#5d6670;
--line:#e3e5e8;
--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#b0559a;--c4:#c08a00;--c5:#3d9fd6;--c6:#6b7480;
--c7:#8a5a3c}
@media (prefers-color-scheme:dark){:root{--bg:#16181b;--card:#1e2125;--ink:#e6e8ea;
--soft:#9aa3ad;
--line:#33383e;--c0:#56b4e9;--c1:#f0863c;--c2:#2fc498;--c3:#d98ac6;--c4:#e6b422;--c5:#8fd0f5;
--c6:#a5adb6;--c7:#c49878}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:26px;margin:0}h2{font-size:19px;margin:38px 0 4px}
h3{font-size:15px;margin:0}h3 small{color:var(--soft);font-weight:400}
.lead,.how{color:var(--soft);margin:2px 0 12px}.how{font-size:13.5px;margin:8px 0 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(158px,1fr));gap:10px;
margin:20px 0}
.card,figure{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:14px 16px;margin:0}
.card b{display:block;white-space:nowrap;font-size:20px;line-height:1.25;
font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px}.card em{font-style:normal;font-weight:400;
color:var(--soft);font-size:14px}
.pair,.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));
gap:16px}
figure{break-inside:avoid;min-width:0}figcaption{font-size:13.5px;color:var(--soft);
margin-top:8px}
img{width:100%;height:auto;display:block;border-radius:6px;image-rendering:auto}
svg{width:100%;height:auto;display:block}
.grid{stroke:var(--line);stroke-width:1}.axis{stroke:var(--soft);stroke-width:1}
.tick{fill:var(--soft);font:11px system-ui,sans-serif}
.line{fill:none;stroke:currentColor;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.area{fill:currentColor;stroke:var(--card);stroke-width:.7}.dot{fill:currentColor}
.legend{margin:2px 0 6px;font-size:12.5px;color:var(--soft)}
.legend span{display:inline-block;margin-right:12px}.legend b{color:var(--ink);font-weight:600}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:5px;
background:currentColor;vertical-align:-1px}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.c4{color:var(--c4)}
.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}
.none{color:var(--soft);font-style:italic}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:400}td:last-child{color:var(--soft);overflow-wrap:anywhere}
details{margin-top:36px}summary{cursor:pointer;font-weight:600}
pre{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px;
overflow:auto;
font:12.5px/1.45 ui-monospace,monospace}
@media print{body{background:#fff}main{max-width:none;padding:0}details{display:none}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)css";

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string InlinePng(std::string_view png, std::string_view alternative) {
  return absl::StrCat("<img src=\"data:image/png;base64,", absl::Base64Escape(std::string(png)),
                      "\" alt=\"", EscapeHtml(alternative), "\">");
}

std::string Page(std::string_view title, std::string_view body) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>",
      EscapeHtml(title), "</title><style>", kStyle, "</style></head>\n<body><main>\n",
      std::string(body), "\n</main></body></html>\n");
}

}  // namespace oxbow::io
