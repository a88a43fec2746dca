"""Creation of cohorts from user files: tables, workbooks, cBioPortal and GDC folders."""
