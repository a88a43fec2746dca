"""Creation of cohorts from your own files: tables, workbooks, cBioPortal and GDC folders."""
