// What the checks of this folder share: the program, a browser, and how a page is judged. Each check is run as
//
//	node CHECK.mjs PROGRAM [FOLDER FOR SCREENSHOTS]
//	ONLY='id-1280-light|en-360-dark' node CHECK.mjs PROGRAM     # looks in these ways only
//
// Exit code 0: all is well; else stderr says what is not.
import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const require = createRequire(process.cwd() + '/');
const { chromium } = require('playwright-core');
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8');
export const [program, shots] = process.argv.slice(2);
const dir = mkdtempSync(join(tmpdir(), 'storeorder-browser-'));
const started = [];
export const wrong = [];
// ways are those in which each page is seen: in both languages, on a phone and on a desk, in light and in dark.
export const ways = [360, 1280].flatMap((width) => ['id-ID', 'en-GB'].flatMap((locale) => ['light', 'dark'].map((colorScheme) => (
  { name: `${locale.slice(0, 2)}-${width}-${colorScheme}`, locale, colorScheme, viewport: { width, height: width === 360 ? 640 : 800 } }
)))).filter(({ name }) => new RegExp(process.env.ONLY ?? '').test(name));
export const wait = (ms) => new Promise((done) => setTimeout(done, ms));

export async function freePort() {
  return new Promise((done) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

// start runs the program and returns what it prints on stdout, when it is ready.
export async function start(port, ...args) {
  const child = spawn(program, args, { cwd: dir, stdio: ['ignore', 'pipe', 'ignore'] });
  started.push(child);
  let out = '';
  child.stdout.on('data', (text) => { out += text; });
  for (let i = 0; i < 300; i++) {
    try {
      if ((await fetch(`http://127.0.0.1:${port}/readyz`)).ok) break;
    } catch { /* not yet */ }
    await wait(100);
  }
  await wait(500);
  return out;
}

export const command = (...args) => JSON.parse(execFileSync(program, args, { cwd: dir, encoding: 'utf8' }));

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

export async function visitor(options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.setDefaultTimeout(30_000);
  // What the content security policy refuses stands on the console. So does each answer of 4xx, which is meant.
  page.on('console', (m) => {
    if (m.type() === 'error' && !m.text().includes('responded with a status of 4')) wrong.push(`${page.url()}: ${m.text()}`);
  });
  page.on('pageerror', (e) => wrong.push(`${page.url()}: ${e}`));
  return page;
}

export const act = (name) => `[data-act="${name}"]`;
export const see = (page, text) => page.getByText(text).first().waitFor();

// enter signs an owner in by a link that a command has printed.
export async function enter(page, link) {
  await page.goto(link);
  await page.click(act('sign-in'));
  await page.waitForURL('**/dashboard*');
}

// look opens a page and judges it.
export async function look(page, address, name) {
  await page.goto(address);
  await judge(page, name + ' ' + address.replace(/^https?:\/\/[^/]+/, ''));
}

// tooWide returns by how much a page is wider than its screen.
const tooWide = (page) => page.evaluate(() => document.scrollingElement.scrollWidth - document.documentElement.clientWidth);

// judge says what is wrong with the page that is shown, and takes its picture.
export async function judge(page, name) {
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run());
  for (const v of found.violations) {
    wrong.push(`${name}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html + ' ' + n.failureSummary).join(' | ')}`);
  }
  const { width, height } = page.viewportSize();
  const isPhone = width < 800;
  for (const w of isPhone ? [320, 430, width] : [width]) {
    await page.setViewportSize({ width: w, height });
    for (const text of isPhone ? ['100%', '200%'] : ['100%']) {
      await page.evaluate((size) => { document.documentElement.style.fontSize = size; }, text);
      const over = await tooWide(page);
      if (over > 0) wrong.push(`${name}: with text of ${text} it is ${over} px wider than a screen of ${w} px`);
    }
    await page.evaluate(() => { document.documentElement.style.fontSize = ''; });
  }
  const small = !isPhone ? [] : await page.evaluate(() => [...document.querySelectorAll('button, .button, input, select, textarea, .side nav a')]
    .filter((e) => !['hidden', 'checkbox', 'radio'].includes(e.type) && e.offsetHeight > 0 && e.offsetHeight < 36)
    .map((e) => e.outerHTML.slice(0, 80)));
  if (small.length) wrong.push(`${name}: too small for a thumb: ${small}`);
  if (!shots) return;
  const whole = await page.evaluate(() => document.scrollingElement.scrollHeight);
  await page.setViewportSize({ width, height: Math.max(height, whole) }); // What stays at the bottom covers nothing.
  await page.screenshot({ path: `${shots}/${name.replaceAll(/[^a-z0-9]+/gi, '-').slice(0, 90)}.png` });
  await page.setViewportSize({ width, height });
}

// walk presses the tab key through a page: it comes to everything that can be used, in the order in which it is read, and
// to nothing that cannot be seen.
export async function walk(page, name) {
  const usable = await page.evaluate(() => {
    const all = [...document.querySelectorAll('a[href], button, input, select, textarea, summary')].filter((e) =>
      e.tabIndex >= 0 && e.type !== 'hidden' && e.checkVisibility({ visibilityProperty: true }) && !e.disabled);
    // Of radio buttons with one name, the tab key comes to the chosen one or to the first.
    const kept = all.filter((e) => e.type !== 'radio' || e === (document.querySelector(`[name="${e.name}"]:checked`) ?? document.querySelector(`[name="${e.name}"]`)));
    kept.forEach((e, i) => { e.dataset.walk = i; });
    window.scrollTo(0, 0);
    document.activeElement?.blur();
    return kept.map((e) => e.outerHTML.slice(0, 100));
  });
  for (let i = 0; i < usable.length; i++) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const e = document.activeElement, box = e.getBoundingClientRect();
      const top = document.elementFromPoint(box.left + Math.min(box.width, innerWidth) / 2, box.top + Math.min(box.height, innerHeight) / 2);
      return { step: Number(e.dataset.walk ?? -1), html: e.outerHTML.slice(0, 100), outline: getComputedStyle(e).outlineStyle,
        covered: !top || !(e.contains(top) || top.contains(e) || e.labels?.[0]?.contains(top)) };
    });
    if (at.step !== i) return wrong.push(`${name}: the tab key comes to ${at.html} instead of ${usable[i]}`);
    if (at.covered) wrong.push(`${name}: ${at.html} has the focus and is covered`);
    if (at.outline === 'none') wrong.push(`${name}: ${at.html} does not show that it has the focus`);
  }
}

// onOneSheet prints a page: it is one sheet, with nothing to press.
export async function onOneSheet(page, address) {
  await page.goto(address);
  await page.emulateMedia({ media: 'print' });
  const sheets = (await page.pdf({ format: 'A4' })).toString('latin1').match(/\/Type\s*\/Page\b/g).length;
  const pressed = await page.$$eval('button, .button', (all) => all.filter((e) => e.offsetHeight > 0).length);
  if (sheets !== 1 || pressed) wrong.push(`${address} is printed on ${sheets} sheets, with ${pressed} buttons`);
  await page.emulateMedia({ media: 'screen' });
}

// run makes a check, says what was wrong, and ends everything that it has started.
export async function run(check) {
  try {
    await check();
  } catch (e) {
    wrong.push(e.stack);
  }
  await browser.close();
  for (const child of started) child.kill('SIGTERM');
  rmSync(dir, { recursive: true });
  if (wrong.length) {
    console.error(wrong.join('\n\n'));
    process.exit(1);
  }
  console.log('all is well');
}
