# Figures of shifted imputations by survival (R 4.2.2, survival 3.5-3), for tests/validation/test_missing.py:
#   cd tests/validation/missing_reference && Rscript reference.R > figures.csv
# patients.csv is simulated (x is missing in some); copies.csv are the test's imputations of x.

library(survival)
d <- read.csv("patients.csv")
copies <- read.csv("copies.csv")
absent <- is.na(d$x)
put <- function(name, ...) cat(name, sprintf("%.12g", c(...)), sep = ",", fill = FALSE, "\n")
exactly <- coxph.control(eps = 1e-12, iter.max = 50, toler.chol = 1e-13)

# Rubin's rules with the degrees of freedom of Barnard and Rubin, for the effect of g.
pooled <- function(shift) {
  fits <- lapply(copies, function(x) {
    x <- x + ifelse(absent, shift, 0)
    coxph(Surv(time, event) ~ g + x, cbind(d[c("time", "event", "g")], x = x), control = exactly)
  })
  q <- sapply(fits, function(fit) coef(fit)[["g"]])
  u <- sapply(fits, function(fit) vcov(fit)[1, 1])
  m <- length(q)
  total <- mean(u) + (1 + 1 / m) * var(q)
  share <- (1 + 1 / m) * var(q) / total
  complete <- sum(d$event) - 2
  observed <- (complete + 1) / (complete + 3) * complete * (1 - share)
  df <- 1 / (share^2 / (m - 1) + 1 / observed)
  c(mean(q), sqrt(total), df, 2 * pt(-abs(mean(q)) / sqrt(total), df))
}
put("plain", pooled(0))
put("alike", pooled(1))
put("exposed", pooled(-0.5 * d$g))
put("tip", uniroot(function(delta) pooled(delta * d$g)[4] - 0.05, c(0, 2), tol = 1e-9)$root)
