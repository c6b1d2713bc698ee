// Reads the pictures of a folder with jsQR, and compares what they say with the texts beside them.
//
//	node read.mjs FOLDER
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';

const require = createRequire(process.cwd() + '/');
const jsQR = require('jsqr');
const { PNG } = require('pngjs');
const jpeg = require('jpeg-js');

const [folder] = process.argv.slice(2);
const pictures = readdirSync(folder).filter((name) => !name.endsWith('.txt'));
for (const name of pictures) {
  const text = readFileSync(`${folder}/${name.replace(/\.\w+$/, '.txt')}`, 'latin1');
  const file = readFileSync(`${folder}/${name}`);
  const { data, width, height } = name.endsWith('.png') ? PNG.sync.read(file) : jpeg.decode(file, { useTArray: true });
  if (jsQR(new Uint8ClampedArray(data), width, height)?.data !== text) {
    console.error(`jsQR does not read ${name}`);
    process.exitCode = 1;
  }
}
console.log(`jsQR has looked at ${pictures.length} pictures`);
