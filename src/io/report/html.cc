// SPDX-License-Identifier: Apache-2.0
#include "io/report/html.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "io/report/svg_chart.h"

namespace oxbow::io {
namespace {

constexpr char kStyle[] = R"css(
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 60px}
main *{min-width:0}
a{color:var(--c0)}
h1{font-size:26px;margin:0;overflow-wrap:anywhere}h2{font-size:19px;margin:38px 0 4px}
h3,figcaption,.legend{overflow-wrap:anywhere}
h3{font-size:15px;margin:0}h3 small{color:var(--soft);font-weight:400}
.lead,.how{color:var(--soft);margin:2px 0 12px}.how{font-size:13.5px;margin:8px 0 0}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(220px,1fr));gap:10px;
margin:20px 0}
.card,figure{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:14px 16px;margin:0}
.card b{display:block;overflow-wrap:anywhere;font-size:20px;line-height:1.25;
font-variant-numeric:tabular-nums}
.card span{color:var(--soft);font-size:13px}.card em{font-style:normal;font-weight:400;
color:var(--soft);font-size:14px}
.pair,.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));
gap:16px}.charts{grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr))}
figure{break-inside:avoid;min-width:0}
figcaption{font-size:13.5px;color:var(--soft);margin-top:8px}
img{max-width:100%;height:auto;display:block;border-radius:6px}
svg{width:100%;height:auto;display:block;overflow:visible}
.legend{margin:2px 0 6px;font-size:12.5px;color:var(--soft)}
.legend span{display:inline-block;margin-right:12px}.legend b{color:var(--ink);font-weight:600}
.legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:5px;
background:currentColor;vertical-align:-1px}
.legend .dash{background:repeating-linear-gradient(90deg,currentColor 0 4px,transparent 4px 7px)}
.none{color:var(--soft);font-style:italic}
.facts{display:flex;flex-wrap:wrap;gap:2px 18px;margin:6px 0 0;font-size:13.5px}
.facts div{min-width:0;overflow-wrap:anywhere}.facts dt{display:inline;color:var(--soft)}
.facts dd{display:inline;margin:0 0 0 5px}
.state{font-size:13px;font-weight:600;margin-left:10px;vertical-align:3px;color:var(--c2)}
.state.old{color:var(--c1)}
.verdict{background:var(--card);border:1px solid var(--line);border-radius:10px;margin:18px 0;
padding:6px 16px}
.verdict li{display:grid;grid-template-columns:92px 98px 1fr;gap:2px 10px;padding:7px 0;
border-top:1px solid var(--line);overflow-wrap:anywhere}
.verdict ul{list-style:none;margin:0;padding:0}.verdict li:first-child{border:0}
.verdict em{font-style:normal;font-weight:600;border-radius:6px;padding:0 8px;height:22px;
font-size:13px;line-height:22px;white-space:nowrap;text-align:center}
.verdict small{grid-column:3;color:var(--soft);font-size:13px}
.good{background:#0a7a55;color:#fff}.watch{background:#e3a008;color:#1d2126}
.bad{background:#b3261e;color:#fff}.unknown{background:var(--line);color:var(--ink)}
.sheet,.part{display:block;background-repeat:no-repeat;border-radius:3px}
.sheet{aspect-ratio:var(--whole);background-size:100% 100%}
.part{position:relative;aspect-ratio:var(--one);overflow:hidden;
background-size:calc(var(--columns)*100%) calc(var(--rows)*100%);
background-position:calc(var(--x)*100%/max(1,var(--columns) - 1))
calc(var(--y)*100%/max(1,var(--rows) - 1))}
.part img{position:absolute;inset:0;width:100%;height:100%;border-radius:0}
.cells{display:grid;grid-template-columns:repeat(auto-fill,minmax(86px,1fr));gap:10px 12px;
margin-top:8px}
:not(.big)>.cell .part,.prompts:not(.big) .part{image-rendering:pixelated}
.cells.big{grid-template-columns:repeat(auto-fill,minmax(min(220px,calc(50% - 5px)),1fr));
gap:12px 10px}
.clip::after{content:"\25b6";position:absolute;right:5px;bottom:5px;padding:2px 5px 2px 7px;
border-radius:4px;background:#000a;color:#fff;font-size:11px;line-height:1.3}
.prompts .clip::after,dialog .clip::after{content:none}
.cell{display:grid;grid-template-columns:1fr auto;gap:3px 6px;align-content:start;font-size:11.5px;
line-height:1.35;color:var(--soft)}
.big .cell{font-size:12.5px}.cell .part{grid-column:1/3}.cell b{color:var(--ink)}
.ok .part{box-shadow:0 0 0 3px #2ea066}.no .part{box-shadow:0 0 0 3px #d94b3a}
.prompt{display:-webkit-box;-webkit-box-orient:vertical;-webkit-line-clamp:3;overflow:hidden;
overflow-wrap:anywhere}
.long{margin:0}.long summary{font-weight:400;list-style:none}
.long summary::-webkit-details-marker{display:none}
.long[open] .prompt{-webkit-line-clamp:none}
.trouble{margin:8px 0 12px;padding:8px 12px 8px 28px;border:1px solid #b3261e;border-radius:8px;
font-size:13.5px;overflow-wrap:anywhere}
.more{display:none;margin:12px 0 0;padding:4px 14px;cursor:pointer}
.js .more{display:inline-block}.js .all .more{display:none}
.js section:not(.all) .big .cell:nth-child(n+13){display:none}
input[name=when],input[name=when]+label{display:none}
.stack figure+figure{margin-top:16px}
dialog{width:min(1240px,calc(100vw - 24px));max-height:calc(100vh - 24px);padding:14px 18px;
border:1px solid var(--line);border-radius:12px;background:var(--card);color:var(--ink)}
dialog::backdrop{background:#000a}
dialog .close{float:right;margin:0 0 8px 12px}dialog nav{display:flex;gap:8px;margin-bottom:8px}
dialog .ask{margin:0 0 12px;white-space:pre-wrap;overflow-wrap:anywhere;max-height:30vh;
overflow-y:auto}
dialog .both{display:grid;gap:16px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,300px),1fr))}
dialog .part{margin:6px 0 8px;max-width:100%}
.tiny,.tiny img{image-rendering:pixelated}.kept{grid-column:1/3}.kept img{width:100%}
.cells .row{grid-column:span 2}
dialog .down,dialog .across{position:absolute;inset:0;
animation:down 1s steps(var(--frames),jump-none) infinite}
dialog .down{background-size:100% calc(var(--frames)*100%);clip-path:inset(1px 0)}
dialog .across{background-size:calc(var(--frames)*100%) 100%;animation-name:across;
clip-path:inset(0 1px)}
dialog .paused span{animation-play-state:paused}
@keyframes down{from{background-position:0 0}to{background-position:0 100%}}
@keyframes across{from{background-position:0 0}to{background-position:100% 0}}
dialog .stop{margin-left:10px;padding:0 10px;font-size:12.5px}
dialog figure{padding:10px 12px}dialog small{color:var(--soft)}
.slide{display:none;gap:10px;margin:4px 0 12px}.slide input{flex:1;min-width:0}
.js .slide{display:flex}
.strip{display:flex;gap:8px;overflow-x:auto;padding:14px 2px 8px}
.strip button{flex:0 0 104px;padding:4px;border:2px solid transparent;border-radius:8px;
background:none;font:12px system-ui,sans-serif;color:var(--soft);cursor:pointer}
.strip button.on{border-color:var(--c0)}.strip i{width:100%;display:block}
button{font:inherit;border:1px solid var(--line);border-radius:6px;background:var(--card);
color:var(--ink)}
.wide{overflow-x:auto;scrollbar-width:thin;scrollbar-color:var(--soft) transparent}
.wide.cut::before{content:"wider than the screen: scroll it sideways \2194";position:sticky;left:0;
display:inline-block;padding:3px 0;color:var(--soft);font-size:12.5px;font-style:italic}
.wide.cut{background:linear-gradient(90deg,transparent,var(--line)) right/28px 100% no-repeat}
.prompts .part{width:54px}.prompts td:first-child{overflow-wrap:anywhere;
min-width:90px}.prompts td{vertical-align:middle;white-space:nowrap}
.prompts.big .part{width:clamp(72px,10vw,128px)}.prompts.big td:first-child{min-width:150px;
font-size:13px}
.prompts td:first-child{white-space:normal}.runs td,.runs th{white-space:nowrap}
.tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--bg);border-radius:6px;
padding:5px 9px;font-size:12px;line-height:1.4;z-index:9;display:none;white-space:pre}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:4px 10px 4px 0;border-bottom:1px solid var(--line)}
th{color:var(--soft);font-weight:400}
details{margin-top:24px}summary{cursor:pointer;font-weight:600}
code,pre{font:12.5px/1.5 ui-monospace,monospace}
pre{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px;
overflow:auto}
@media screen and (max-width:900px){
input[name=when]+label{display:inline-block;padding:5px 18px;margin:0 8px 10px 0;cursor:pointer;
border:1px solid var(--line);border-radius:8px}
input[name=when]{display:block;position:absolute;opacity:0}
input[name=when]:focus-visible+label{outline:2px solid var(--c0)}
input[name=when]:checked+label{background:var(--c0);border-color:var(--c0);color:#fff}
#when0:checked~.views .view+.view,#when1:checked~.views .view:first-child{display:none}}
@media (max-width:560px){main{padding:18px 12px 40px}.cards{grid-template-columns:1fr 1fr}
.card{padding:10px 12px}.card b{font-size:17px}.verdict li{grid-template-columns:1fr 98px}
.verdict em+span,.verdict small{grid-column:1/3}
.prompts tr{display:flex;flex-wrap:wrap;align-items:center;padding:6px 0;
border-bottom:1px solid var(--line)}
.prompts th,.prompts td{border:0;flex:1 1 0;order:2;padding:3px 6px 0 0}
.prompts tr>:first-child{flex:1 1 calc(100% - 96px);order:0}
.prompts tr>:last-child{flex:0 0 96px;order:1;padding:0;text-align:right;white-space:normal}
.prompts th:first-child,.prompts th:last-child{display:none}
.prompts .part,.prompts.big .part{width:100%}}
@media print{:root{color-scheme:light}body{background:#fff}main{max-width:none;padding:0}
details:not(.long),.slide,.strip,.more,.whole,dialog{display:none!important}
pre{white-space:pre-wrap;overflow-wrap:anywhere}
.wide.cut::before{content:none}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)css";

std::string StyleSheet() {
  return absl::StrCat(":root{color-scheme:light dark;--bg:#fbfbfa;--card:#fff;", kChartColours,
                      "}\n@media screen and (prefers-color-scheme:dark){:root{--bg:#16181b;",
                      "--card:#1e2125;", kChartColoursInDark, "}}", kChartRules, kStyle);
}

}  // namespace

std::string EscapeHtml(std::string_view text) {
  return absl::StrReplaceAll(
      absl::string_view(text.data(), text.size()),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string Page(std::string_view title, std::string_view body, const PageUpdates& updates) {
  std::string how;
  if (updates.how == Reload::kFromServer) {
    how = absl::StrCat(" data-live=\"", EscapeHtml(updates.version), "\"");
  } else if (updates.how == Reload::kItself) {
    how = absl::StrCat(" data-reload=\"10\" data-written=\"", updates.written, "\"");
  }
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
      "<link rel=\"icon\" href=\"data:,\"><title>",
      EscapeHtml(title), "</title><style>", StyleSheet(), "</style></head>\n<body", how,
      "><main>\n", std::string(body),
      "\n</main><dialog aria-label=\"a picture\"></dialog><div class=\"tip\"></div><script>",
      kPageScript, "</script></body></html>\n");
}

}  // namespace oxbow::io
