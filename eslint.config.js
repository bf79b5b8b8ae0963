import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['dist/**', 'node_modules/**', 'coverage/**', 'portable/**'] },
  ...tseslint.configs.recommendedTypeChecked,
  {
    files: ['**/*.ts'],
    languageOptions: { parserOptions: { projectService: true, tsconfigRootDir: import.meta.dirname } },
    rules: {
      '@typescript-eslint/no-unused-vars': [
        'error',
        { argsIgnorePattern: '^_', varsIgnorePattern: '^_', ignoreRestSiblings: true },
      ],
      '@typescript-eslint/no-non-null-assertion': 'off',
      // Contradicts noUncheckedIndexedAccess: it calls assertions unnecessary that the compiler needs.
      '@typescript-eslint/no-unnecessary-type-assertion': 'off',
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      'max-lines': ['error', { max: 600, skipComments: true, skipBlankLines: true }],
      eqeqeq: 'error',
    },
  },
  // Scripts in plain JavaScript have no types to check.
  { files: ['**/*.mjs', '**/*.mts', '**/*.js'], ...tseslint.configs.disableTypeChecked },
);
