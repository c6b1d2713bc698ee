// What the checks of this folder share: the program, a browser, and how a page is judged. Each check is run as
//
//	node CHECK.mjs PROGRAM [FOLDER FOR SCREENSHOTS]
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
  page.setDefaultTimeout(10_000);
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

// look judges one page.
export async function look(page, address, name) {
  const path = address.replace(/^https?:\/\/[^/]+/, '');
  await page.goto(address);
  await page.evaluate(axe);
  const found = await page.evaluate(() => window.axe.run());
  for (const v of found.violations) {
    wrong.push(`${name} ${path}: ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html + ' ' + n.failureSummary).join(' | ')}`);
  }
  const { width, height } = page.viewportSize();
  for (const w of width < 800 ? [320, 430, width] : [width]) {
    await page.setViewportSize({ width: w, height });
    const over = await page.evaluate(() => document.scrollingElement.scrollWidth - document.documentElement.clientWidth);
    if (over > 0) wrong.push(`${name} ${path}: is ${over} px wider than a screen of ${w} px`);
  }
  if (width < 800) {
    await page.evaluate(() => { document.documentElement.style.fontSize = '200%'; });
    const over = await page.evaluate(() => document.scrollingElement.scrollWidth - document.documentElement.clientWidth);
    if (over > 0) wrong.push(`${name} ${path}: with text of 200 % it is ${over} px wider than a screen of ${width} px`);
    await page.evaluate(() => { document.documentElement.style.fontSize = ''; });
  }
  const small = width > 800 ? [] : await page.evaluate(() => [...document.querySelectorAll('button, .button, input, select, textarea, .side nav a')]
    .filter((e) => !['hidden', 'checkbox', 'radio'].includes(e.type) && e.offsetHeight > 0 && e.offsetHeight < 36)
    .map((e) => e.outerHTML.slice(0, 80)));
  if (small.length) wrong.push(`${name} ${path}: too small for a thumb: ${small}`);
  if (shots) await page.screenshot({ path: `${shots}/${name}${path.replaceAll(/[^a-z0-9]+/gi, '-').slice(0, 80)}.png`, fullPage: true });
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
