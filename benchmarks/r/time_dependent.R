# Figures of time-dependent and landmark Cox models, for tests/validation/test_time_known.py.
#
#   apt-get install r-base-core r-cran-survival
#   Rscript benchmarks/r/time_dependent.R tests/validation/time_reference
#
# Writes the two data sets (survival::jasa, the Stanford heart transplants of Crowley and Hu 1977,
# Journal of the American Statistical Association; survival::mgus2, Kyle and others 2002, New
# England Journal of Medicine) and what tmerge and coxph make of them.

library(survival)
out <- commandArgs(trailingOnly = TRUE)[1]

# As in the vignette "timedep": a death on the day of acceptance is half a day later.
jasa <- survival::jasa
stanford <- data.frame(
  patient = sprintf("S%03d", seq_len(nrow(jasa))),
  days = pmax(0.5, jasa$futime), dead = jasa$fustat,
  transplant = ifelse(jasa$transplant == 1, "yes", "no"), wait = jasa$wait.time,
  age = round(jasa$age, 4), surgery = jasa$surgery
)
write.csv(stanford, file.path(out, "stanford.csv"), row.names = FALSE, na = "", quote = FALSE)

mgus <- survival::mgus2
mgus <- data.frame(
  patient = sprintf("M%04d", mgus$id), months = pmax(0.5, mgus$futime), dead = mgus$death,
  progressed = ifelse(mgus$pstat == 1, "yes", "no"), since = ifelse(mgus$pstat == 1, mgus$ptime, NA),
  age = mgus$age, sex = as.character(mgus$sex)
)
write.csv(mgus, file.path(out, "mgus.csv"), row.names = FALSE, na = "", quote = FALSE)

z <- function(x) (x - mean(x)) / sd(x)
figures <- list()
keep <- function(name, fit) {
  rows <- summary(fit)$coefficients
  figures[[name]] <<- list(
    records = fit$n, events = fit$nevent, coef = unname(coef(fit)),
    se = unname(sqrt(diag(vcov(fit)))), p = unname(rows[, "Pr(>|z|)"]), loglik = fit$loglik
  )
}

heart <- tmerge(stanford, stanford, id = patient, death = event(days, dead), given = tdc(wait))
keep("stanford", coxph(Surv(tstart, tstop, death) ~ given, heart))
keep("stanford_adjusted", coxph(Surv(tstart, tstop, death) ~ given + age + surgery, heart))
keep("stanford_ever", coxph(Surv(days, dead) ~ I(transplant == "yes"), stanford))

course <- tmerge(mgus, mgus, id = patient, death = event(months, dead), now = tdc(since))
keep("mgus", coxph(Surv(tstart, tstop, death) ~ now, course))
keep("mgus_stratified", coxph(Surv(tstart, tstop, death) ~ now + age + strata(sex), course))

month <- 365.25 / 12
for (at in c(1, 2, 3)) {
  alive <- subset(stanford, days / month > at)
  alive$given <- !is.na(alive$wait) & alive$wait / month <= at
  left <- Surv(alive$days / month - at, alive$dead)
  keep(sprintf("stanford_landmark_%d", at), coxph(left ~ given, alive))
  test <- survdiff(left ~ given, alive)
  figures[[sprintf("stanford_landmark_%d", at)]]$logrank <- test$chisq
}
alive <- subset(mgus, months > 60)
alive$given <- !is.na(alive$since) & alive$since <= 60
keep("mgus_landmark_60", coxph(Surv(months - 60, dead) ~ given + age, alive))

show <- function(x) {
  if (is.list(x)) {
    parts <- sprintf("\"%s\": %s", names(x), vapply(x, show, ""))
    return(paste0("{", paste(parts, collapse = ", "), "}"))
  }
  numbers <- formatC(x, digits = 12, format = "g")
  if (length(x) == 1) trimws(numbers) else paste0("[", paste(trimws(numbers), collapse = ", "), "]")
}
lines <- sprintf("  \"%s\": %s", names(figures), vapply(figures, show, ""))
version <- sprintf("  \"versions\": \"%s, survival %s\"", R.version.string, packageVersion("survival"))
writeLines(c("{", paste(c(version, lines), collapse = ",\n"), "}"), file.path(out, "figures.json"))
