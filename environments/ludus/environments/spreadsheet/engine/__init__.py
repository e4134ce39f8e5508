"""The workbook and the formulas of `spreadsheet`: a bounded part of what LibreOffice and Excel compute."""
