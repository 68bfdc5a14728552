import { readFileSync } from "node:fs";

export function read(path) {
  const data = readFileSync(path);
  const start = 8 + Number(data.readBigUInt64LE(0));
  const types = { F64: Float64Array, F32: Float32Array, I64: BigInt64Array, I32: Int32Array };
  const arrays = {};
  for (const [name, about] of Object.entries(JSON.parse(data.subarray(8, start).toString()))) {
    if (name === "__metadata__") continue;
    const [first, last] = about.data_offsets;
    const copy = new Uint8Array(data.subarray(start + first, start + last));
    arrays[name] = { shape: about.shape, values: new types[about.dtype](copy.buffer) };
  }
  return arrays;
}

export function decode(code, bytes) {
  const [, points, width] = code.centroids.shape;
  const [d, axes] = code.components.shape;
  const group = Array.from(code.group.values, Number);
  const scale = code.spread.values[0];
  const vector = Float64Array.from(code.mean.values);
  group.forEach((number, axis) => {
    const point = (bytes[number >> 1] >> (4 * (number & 1))) & 15;
    const place = group.slice(0, axis).filter((other) => other === number).length;
    const value = scale * code.centroids.values[(number * points + point) * width + place];
    for (let i = 0; i < d; i++) vector[i] += value * code.components.values[i * axes + axis];
  });
  return vector;
}
