// SPDX-License-Identifier: Apache-2.0
#include "io/report/html.h"

namespace oxbow::io {

const char kPageScript[] = R"js(
(() => {
'use strict';
const one = (css, in_ = document) => in_.querySelector(css);
const all = (css, in_ = document) => [...in_.querySelectorAll(css)];
let sheets = [], names = [], playing = 0;

// A list of a sheet; what is not there is as in the first.
const list = (sheet, name) => sheet[name] || sheets[0][name];
const place = part => +part.className.match(/\bp(\d+)/)[1];
const make = (tag, text, parent, name = '') => {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = name;
  return parent.appendChild(element);
};

// The picture's own file over the small copy that is in the page, where the file is there.
function sharpen(part, i, k, failed = () => {}) {
  const image = make('img', '', part);
  image.loading = 'lazy';
  image.alt = '';
  image.onerror = () => { image.remove(); failed(); };
  image.src = sheets[i].folder + list(sheets[i], 'files')[k];
}

// A film over its first frame, as large: the frames of its file, one after the other.
function playFilm(part, sheet, film, wide, note) {
  if (!film) return;
  const [file, frames, seconds] = film, strip = new Image();
  strip.onload = () => {
    const screen = make('span', '', part, wide ? 'down' : 'across');
    screen.style.backgroundImage = 'url("' + strip.src + '")';
    screen.style.setProperty('--frames', frames);
    screen.style.animationDuration = seconds + 's';
    for (const run of screen.getAnimations()) run.startTime = 0;  // All films at one moment.
    const stop = make('button', 'pause', note.parentNode, 'stop');
    note.after(stop);
    stop.onclick = () => { stop.textContent = part.classList.toggle('paused') ? 'play' : 'pause'; };
    if (matchMedia('(prefers-reduced-motion:reduce)').matches) stop.click();
  };
  strip.onerror = () => { note.textContent += ': its film is not beside this page, or damaged'; };
  strip.src = sheet.folder + file;
}

// Shows the pictures of another evaluation beside those of the first.
function show(i) {
  const view = all('.view')[1];
  if (!view || !sheets[i]) return;
  const {step, caption, folder, marks} = sheets[i];
  view.dataset.sheet = i;
  const between = i > 0 && i < sheets.length - 1;  // Its copy in the page is very small.
  for (const part of all('.part,.sheet', view)) {
    part.className = part.className.replace(/\bs\d+/, 's' + i);
    part.replaceChildren();
    if (!part.matches('.part')) continue;
    const k = place(part), mark = marks[k] || '';
    part.href = folder + list(sheets[i], 'files')[k];
    if (between && part.closest('.big')) sharpen(part, i, k);
    one('b', part.parentNode).textContent = mark;
    part.parentNode.className = 'cell' + ({'\u2713': ' ok', '\u2715': ' no'}[mark] || '');
  }
  one('.at', view).textContent = step;
  one('figcaption', view).firstChild.textContent = caption + ' ';
  one('.whole', view).href = folder + 'eval.png';
  one('#slider').value = i;
  for (const button of all('.strip button')) {
    const on = +button.dataset.sheet === i;
    button.classList.toggle('on', on);
    if (on) one('.strip').scrollLeft = button.offsetLeft - one('.strip').offsetLeft - 120;
  }
}

// On a narrow screen the second grid is the one that changes.
function choose(i) {
  const after = one('#when1');
  if (after) after.checked = true;
  show(i);
}

function play() {
  const slider = one('#slider');
  if (playing) { clearInterval(playing); playing = 0; return; }
  if (+slider.value === sheets.length - 1) choose(0);
  playing = setInterval(() => {
    const next = +slider.value + 1;
    if (next < sheets.length) choose(next); else play();
  }, 350);
}

// One picture of each grid at full size, with all that is known of it.
function look(k) {
  const dialog = one('dialog');
  const parts = all('.view').map(view => one('.cell .p' + k, view)).filter(part => part);
  const promptOf = part => one('.prompt', part.parentNode).textContent;
  if (!parts.length) return;
  const prompt = promptOf(parts[0]);
  dialog.replaceChildren();
  const close = make('button', '\u00d7', dialog, 'close'), nav = make('nav', '', dialog);
  close.setAttribute('aria-label', 'close');
  close.onclick = () => dialog.close();
  for (const [text, label, to] of [['\u2190', 'previous', k - 1], ['\u2192', 'next', k + 1]]) {
    const button = make('button', text, nav);
    button.setAttribute('aria-label', label);
    button.disabled = !one('.view .cell .p' + to);
    button.onclick = () => look(to);
  }
  make('p', prompt, dialog, 'ask').dir = 'auto';
  const both = make('div', '', dialog, 'both');
  for (const part of parts.filter(part => promptOf(part) === prompt)) {
    const view = part.closest('.view'), i = +view.dataset.sheet, sheet = sheets[i];
    const figure = make('figure', '', both);
    make('h3', one('h3', view).textContent, figure);
    const large = part.cloneNode(), [width, height] = list(sheet, 'sizes')[k];
    const times = width > 160 ? 1 : Math.ceil(240 / width);
    large.classList.toggle('tiny', times > 1);
    large.style.width = width * times + 'px';
    large.style.aspectRatio = width + '/' + height;
    figure.appendChild(large);
    const told = [width + ' \u00d7 ' + height, list(sheet, 'lengths')[k], list(sheet, 'files')[k]];
    const note = make('small', told.filter(word => word).join(', '), figure);
    playFilm(large, sheet, list(sheet, 'films')[k], width >= height, note);
    sharpen(large, i, k, () => {
      note.textContent += ': not beside this page, or damaged; this is the small copy in the page';
    });
    const table = make('table', '', figure);
    const values = sheet.values[k];
    ['reward, the weighted sum', ...names].forEach((name, n) => {
      const row = make('tr', '', table);
      make('td', name, row);
      make('td', values[n] === null ? 'not scored' : values[n], row);
    });
    make('small', list(sheet, 'noises')[k], figure);
  }
  if (!dialog.open) dialog.showModal();
  dialog.dataset.place = k;
}

document.addEventListener('click', event => {
  if (event.target.matches('.more')) event.target.closest('section').classList.add('all');
  if (event.target.matches('dialog')) event.target.close();
  const part = event.target.closest('.part');
  if (!part || part.closest('dialog') || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  look(place(part));
});
document.addEventListener('keydown', event => {
  const dialog = one('dialog'), to = {ArrowLeft: -1, ArrowRight: 1}[event.key];
  if (dialog.open && to) look(+dialog.dataset.place + to);
});

function start() {
  const data = one('#sheets');
  ({sheets, names} = data ? JSON.parse(data.textContent) : {sheets: [], names: []});
  const slider = one('#slider');
  if (!slider) return;
  slider.oninput = () => choose(+slider.value);
  one('#play').onclick = play;
  for (const button of all('.strip button')) button.onclick = () => choose(+button.dataset.sheet);
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

// Says where a table is wider than its place.
function sayCut(table) {
  table.classList.toggle('cut', table.scrollWidth > table.clientWidth + 1);
}
const widths = new ResizeObserver(changes => requestAnimationFrame(() => {
  for (const {target} of changes) sayCut(target);
}));
function watchTables() {
  widths.disconnect();
  for (const table of all('.wide')) {
    sayCut(table);  // A page that is not in view is not drawn, and no observer is called.
    widths.observe(table);
  }
}

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
      const chosen = one('input:checked', part);
      part.innerHTML = state.parts[id];
      if (chosen && document.getElementById(chosen.id)) {
        document.getElementById(chosen.id).checked = true;
      }
      all('details', part).forEach((details, i) => { details.open = !!open[i]; });
    }
    before = part;
  }
  watchTables();
}

// New parts: from the server of this page, or from the file it is.
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
watchTables();
if (document.body.dataset.live) ask();
if (document.body.dataset.reload) {
  const {reload, written} = document.body.dataset, state = one('.state');
  const minutes = Math.floor((Date.now() / 1000 - written) / 60);
  if (minutes < 10) {
    const again = () => one('dialog').open ? setTimeout(again, 1000) : location.reload();
    setTimeout(again, 1000 * reload);
  } else if (state) {  // A run that lives writes its page every five minutes.
    state.textContent = 'nothing new for ' + minutes + ' min; it may have been killed';
    state.classList.add('old');
  }
}
})();
)js";

}  // namespace oxbow::io
