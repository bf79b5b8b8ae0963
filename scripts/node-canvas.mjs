/**
 * Bundles chartjs-node-canvas on @napi-rs/canvas. As published it loads the native `canvas` (system Cairo) anew for
 * each renderer, through `require` and its cache, which a bundle of ECMAScript modules does not have.
 */
const REPLACED = {
  './freshRequire': "import * as canvas from '@napi-rs/canvas'; export const freshRequire = () => canvas;",
  path: "export { join } from 'node:path';",
};

export const nodeCanvas = {
  name: 'node-canvas',
  setup: ({ initialOptions, onResolve, onLoad }) => {
    initialOptions.define = { ...initialOptions.define, 'require.cache': '{}' };
    onResolve({ filter: /^(\.\/freshRequire|path)$/ }, ({ path, importer, resolveDir }) =>
      /node_modules[\\/]chartjs-node-canvas[\\/]/.test(importer)
        ? { path, namespace: 'node-canvas', pluginData: resolveDir }
        : undefined,
    );
    onLoad({ filter: /.*/, namespace: 'node-canvas' }, ({ path, pluginData }) => ({
      contents: REPLACED[path],
      resolveDir: pluginData,
    }));
  },
};
