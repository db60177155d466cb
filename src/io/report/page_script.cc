// SPDX-License-Identifier: Apache-2.0
#include "io/report/page_script.h"

namespace oxbow::io {

const char kPageScript[] = R"js(
(() => {
'use strict';
const one = (css, in_ = document) => in_.querySelector(css);
const all = (css, in_ = document) => [...in_.querySelectorAll(css)];
let sheets = [], playing = 0;

// Shows the pictures of another evaluation beside those of the first.
function show(i) {
  const view = all('.view')[1];
  if (!view || !sheets[i]) return;
  const [step, caption, marks] = sheets[i];
  const cells = one('.cells', view) || view;
  for (const part of all('.part,.sheet', cells)) {
    part.className = part.className.replace(/\bs\d+/, 's' + i);
  }
  all('b', cells).forEach((mark, k) => { mark.textContent = marks[k] || ''; });
  one('.at', view).textContent = step;
  one('figcaption', view).textContent = caption;
  one('#slider').value = i;
  for (const button of all('.strip button')) {
    button.classList.toggle('on', +button.dataset.sheet === i);
  }
}

function play() {
  const slider = one('#slider');
  if (playing) { clearInterval(playing); playing = 0; return; }
  if (+slider.value === sheets.length - 1) show(0);
  playing = setInterval(() => {
    const next = +slider.value + 1;
    if (next < sheets.length) show(next); else play();
  }, 350);
}

function start() {
  const data = one('#sheets');
  sheets = data ? JSON.parse(data.textContent) : [];
  const slider = one('#slider');
  if (!slider) return;
  slider.oninput = () => show(+slider.value);
  one('#play').onclick = play;
  for (const button of all('.strip button')) button.onclick = () => show(+button.dataset.sheet);
  show(sheets.length - 1);
}

const numbers = new WeakMap();
function line(group) {
  if (!numbers.has(group)) {
    numbers.set(group, {x: group.dataset.x.split(' ').map(Number), y: group.dataset.y.split(' ')});
  }
  return numbers.get(group);
}

function nearest(steps, step) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] > step) high = middle; else low = middle;
  }
  return Math.abs(steps[low] - step) <= Math.abs(steps[high] - step) ? low : high;
}

// Values under the pointer.
let hidden = () => {};
document.addEventListener('pointermove', event => {
  hidden();
  const svg = event.target.closest && event.target.closest('.chart svg');
  if (!svg) return;
  const box = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / box.width;
  const {low, high, left, right} = Object.fromEntries(
      Object.entries(svg.dataset).map(([key, value]) => [key, +value]));
  const at = (event.clientX - box.left) * scale;
  if (at < left - 4 || at > right + 4) return;
  const step = low + (at - left) / (right - left) * (high - low);
  const rows = [], groups = all('g[data-x]', svg);
  let shown = null;
  for (const group of groups) {
    const {x, y} = line(group), i = nearest(x, step);
    if (shown === null || Math.abs(x[i] - step) < Math.abs(shown - step)) shown = x[i];
    rows.push(group.dataset.name + '  ' + y[i]);
  }
  if (shown === null) return;
  const cursor = one('.cursor', svg), tip = one('.tip');
  const place = high > low ? left + (shown - low) / (high - low) * (right - left) : at;
  cursor.setAttribute('x1', place);
  cursor.setAttribute('x2', place);
  cursor.style.visibility = 'visible';
  tip.textContent = 'step ' + Math.round(shown) + '\n' + rows.join('\n');
  tip.style.display = 'block';
  const room = innerWidth - tip.offsetWidth - 8;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, room)) + 'px';
  tip.style.top = Math.max(4, event.clientY - tip.offsetHeight - 12) + 'px';
  hidden = () => { cursor.style.visibility = 'hidden'; tip.style.display = 'none'; };
});

// Puts the sections that changed into the page, those that are new at their places.
function take(state) {
  for (const part of all('main>section')) if (!state.order.includes(part.id)) part.remove();
  let before = null;
  for (const id of state.order) {
    let part = document.getElementById(id);
    if (!part) {
      part = document.createElement('section');
      part.id = id;
      one('main').insertBefore(part, before ? before.nextSibling : one('main').firstChild);
    }
    if (id in state.parts) {
      const open = all('details', part).map(details => details.open);
      part.innerHTML = state.parts[id];
      all('details', part).forEach((details, i) => { details.open = !!open[i]; });
    }
    before = part;
  }
}

// What is new: from the server of this page, or from the file it is.
let have = document.body.dataset.live;
async function ask() {
  if (document.hidden) { setTimeout(ask, 2000); return; }
  try {
    const answer = await fetch('state.json?have=' + have);
    if (answer.status === 200) {
      const state = await answer.json(), slider = one('#slider');
      const shown = slider && +slider.value < sheets.length - 1 ? +slider.value : -1;
      if ('pictures' in state.parts && playing) play();
      take(state);
      have = state.version;
      if ('pictures' in state.parts) {
        start();
        if (shown >= 0) show(shown);
      }
    }
    document.body.classList.remove('away');
  } catch (error) {
    document.body.classList.add('away');
  }
  setTimeout(ask, 2000);
}

document.documentElement.classList.add('js');
start();
if (document.body.dataset.live) ask();
if (document.body.dataset.reload) {
  const {reload, written} = document.body.dataset, state = one('.state');
  const minutes = Math.floor((Date.now() / 1000 - written) / 60);
  if (minutes < 10) {
    setTimeout(() => location.reload(), 1000 * reload);
  } else if (state) {  // A run that lives writes its page every five minutes.
    state.textContent = 'nothing new for ' + minutes + ' min; it may have been killed';
    state.classList.add('old');
  }
}
})();
)js";

}  // namespace oxbow::io
