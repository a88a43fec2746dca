# Recreates tests/mcp_servers/measures/r: point patterns and what spatstat computes on them.
#
#   apt-get install r-base-core r-cran-spatstat.explore
#   Rscript benchmarks/r/spatial.R tests/mcp_servers/measures/r
#
# Two types of cells in three windows: a rectangle, an L (not convex) and a disc with a hole. All
# corrections are the border's ("guard" for Clark and Evans). A line of figures.csv is window,
# statistic, radius, value; windows are in windows.csv ring by ring, points in points.csv.
suppressMessages({library(spatstat.geom); library(spatstat.random); library(spatstat.explore)})
out <- commandArgs(trailingOnly = TRUE)[1]
dir.create(out, recursive = TRUE, showWarnings = FALSE)
set.seed(20)

ring <- function(r, n = 64) {
  angle <- 2 * pi * seq_len(n) / n
  list(x = 500 + r * cos(angle), y = 500 + r * sin(angle))
}
reverse <- function(p) list(x = rev(p$x), y = rev(p$y))
windows <- list(
  rectangle = owin(c(0, 670), c(0, 500)),
  ell = owin(poly = list(x = c(0, 900, 900, 400, 400, 0), y = c(0, 0, 300, 300, 800, 800))),
  ring = owin(poly = list(ring(480), reverse(ring(150))))
)
patterns <- list(
  rectangle = function(w) list(a = rpoispp(9e-4, win = w), b = rpoispp(5e-4, win = w)),
  ell = function(w) list(a = rMatClust(2e-5, 40, 20, win = w), b = rpoispp(4e-4, win = w)),
  ring = function(w) list(a = rSSI(14, 500, win = w), b = rThomas(2e-5, 30, 15, win = w))
)
radii <- c(15, 30, 60)
points <- NULL; shapes <- NULL; figures <- NULL
add <- function(window, statistic, radius, value) {
  figures <<- rbind(figures, data.frame(window, statistic, radius, value = signif(value, 12)))
}
# Kest evaluates on a grid of radii: read it exactly at each radius
at <- function(f, r, column) f[[column]][which.min(abs(f$r - r))]
for (name in names(windows)) {
  w <- windows[[name]]
  p <- patterns[[name]](w)
  # on a grid of 1/64, which text holds exactly
  for (k in names(p)) p[[k]] <- unique(ppp(round(p[[k]]$x * 64) / 64, round(p[[k]]$y * 64) / 64,
                                           window = w))
  both <- superimpose(a = p$a, b = p$b, W = w)
  points <- rbind(points, data.frame(window = name, type = marks(both), x = both$x, y = both$y))
  polygon <- as.polygonal(w)$bdry
  for (i in seq_along(polygon))
    shapes <- rbind(shapes, data.frame(window = name, ring = i, x = polygon[[i]]$x,
                                       y = polygon[[i]]$y))
  grid <- seq(0, 64, by = 1 / 512)  # spatstat counts distances to the border in these bins
  k <- Kest(p$a, r = grid, correction = "border")
  cross <- Kcross(both, "a", "b", r = grid, correction = "border")
  g <- Gcross(both, "a", "b", r = grid, correction = "rs")
  for (r in radii) {
    add(name, "k", r, at(k, r, "border"))
    add(name, "l", r, sqrt(at(k, r, "border") / pi))
    add(name, "cross_k", r, at(cross, r, "border"))
    add(name, "cross_g", r, at(g, r, "rs"))
    # pairs in a ring of ± 5, of points farther than r + 5 from the border, by all distances
    far <- bdist.points(p$a) >= r + 5
    d <- pairdist(p$a)[far, , drop = FALSE]
    in_ring <- sum(d > r - 5 & d <= r + 5)
    add(name, "ring", r, in_ring / sum(far) / (npoints(p$a) / area(w)) / (pi * ((r + 5)^2 - (r - 5)^2)))
    # spatstat's own estimator (Epanechnikov kernel, translation): another estimate of the same
    add(name, "pcf", r, pcf(p$a, r = seq(0, 64, by = 1 / 8), correction = "translate", bw = 5 / sqrt(5))$trans[8 * r + 1])
    add(name, "share_near", r, mean(nncross(p$a, p$b, what = "dist") <= r))
  }
  for (guard in c(0, 20))
    add(name, "clark_evans", guard, if (guard == 0) clarkevans(p$a, correction = "none") else
      clarkevans(p$a, correction = "guard", clipregion = erosion(w, guard)))
  add(name, "area", 0, area(w))
  add(name, "mean_nearest", 0, mean(nndist(p$a)))
  add(name, "mean_nearest_other", 0, mean(nncross(p$a, p$b, what = "dist")))
  add(name, "median_nearest_other", 0, median(nncross(p$a, p$b, what = "dist")))
}
write.csv(points, file.path(out, "points.csv"), row.names = FALSE, quote = FALSE)
write.csv(shapes, file.path(out, "windows.csv"), row.names = FALSE, quote = FALSE)
write.csv(figures, file.path(out, "figures.csv"), row.names = FALSE, quote = FALSE)
