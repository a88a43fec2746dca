# Ridge models by survival (R 4.2.2, survival 3.5-3), for tests/validation/test_penalized.py:
#   cd tests/validation/penalized_reference && Rscript reference.R > figures.csv
# Tied times are handled by Breslow's method; theta is the number of patients times the penalty.

library(survival)
d <- read.csv("../absolute_reference/patients.csv")
x <- scale(as.matrix(d[c("g", "x", "b")]))
for (size in c(0.02, 0.3)) {
  fit <- coxph(Surv(d$time, d$event) ~ ridge(x, theta = nrow(d) * size, scale = FALSE),
               ties = "breslow", control = coxph.control(eps = 1e-13, iter.max = 100,
                                                         toler.chol = 1e-14))
  cat(size, sprintf("%.12g", coef(fit)), sep = ",")
  cat("\n")
}
