// SPDX-License-Identifier: Apache-2.0
/** Something made in the page becomes a file. */

/** @param {Blob} blob @param {string} name */
export function saveBlob(blob, name) {
  const url = URL.createObjectURL(blob),
    a = document.createElement('a');
  a.download = name.replace(/[^A-Za-z0-9._-]/g, '_');
  a.href = url;
  a.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
/** @param {string} text @param {string} name @param {string} type */
export const saveText = (text, name, type) => saveBlob(new Blob([text], { type }), name);
